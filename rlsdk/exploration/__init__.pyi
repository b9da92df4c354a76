from rlsdk.exploration.behavior import UniformWarmUp as UniformWarmUp
from rlsdk.exploration.behavior import noisy_behavior as noisy_behavior
from rlsdk.exploration.behavior import random_actions as random_actions
from rlsdk.settings.action_noise import NormalActionNoise as NormalActionNoise
from rlsdk.settings.action_noise import OrnsteinUhlenbeckActionNoise as OrnsteinUhlenbeckActionNoise
