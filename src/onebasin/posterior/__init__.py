"""The forms that a posterior takes: draws, a Gaussian, a mixture; moments and push-forward."""

from onebasin.posterior.draws import Draws
from onebasin.posterior.gaussian import Gaussian
from onebasin.posterior.mixture import Mixture
from onebasin.posterior.moments import moments
from onebasin.posterior.push_forward import log_volume, push_forward

__all__ = ["Draws", "Gaussian", "Mixture", "log_volume", "moments", "push_forward"]
