from rlsdk.distributions.categorical import Bernoulli as Bernoulli
from rlsdk.distributions.categorical import Categorical as Categorical
from rlsdk.distributions.categorical import MultiCategorical as MultiCategorical
from rlsdk.distributions.categorical import Product as Product
from rlsdk.distributions.gaussian import Gaussian as Gaussian
from rlsdk.distributions.gaussian import SquashedGaussian as SquashedGaussian
