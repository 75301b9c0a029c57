"""Networks, each as a pair of functions `Net(init, apply)`."""

from onebasin.nets.cnn import cnn as cnn
from onebasin.nets.mlp import mlp as mlp
from onebasin.nets.net import Net as Net
from onebasin.nets.optunet import optunet as optunet
from onebasin.nets.precision import in_bfloat16 as in_bfloat16
from onebasin.nets.resnet import resnet as resnet
from onebasin.nets.resnet18 import resnet18 as resnet18
from onebasin.nets.resnet20 import resnet20 as resnet20

__all__ = ["Net", "cnn", "in_bfloat16", "mlp", "optunet", "resnet", "resnet18", "resnet20"]
