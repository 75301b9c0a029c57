"""Networks, each as a pair of functions `Net(init, apply)`."""

from onebasin.nets.cnn import cnn as cnn
from onebasin.nets.gpt import gpt as gpt
from onebasin.nets.mlp import mlp as mlp
from onebasin.nets.net import Net as Net
from onebasin.nets.optunet import optunet as optunet
from onebasin.nets.precision import in_bfloat16 as in_bfloat16
from onebasin.nets.resnet import resnet as resnet
from onebasin.nets.resnet18 import resnet18 as resnet18
from onebasin.nets.resnet20 import resnet20 as resnet20
from onebasin.nets.resnet34 import resnet34 as resnet34
from onebasin.nets.resnet50 import resnet50 as resnet50
from onebasin.nets.scaling import scale_inputs as scale_inputs
from onebasin.nets.vit import vit as vit
from onebasin.nets.wide_resnet import wide_resnet as wide_resnet

__all__ = [
    "Net",
    "cnn",
    "gpt",
    "in_bfloat16",
    "mlp",
    "optunet",
    "resnet",
    "resnet18",
    "resnet20",
    "resnet34",
    "resnet50",
    "scale_inputs",
    "vit",
    "wide_resnet",
]
