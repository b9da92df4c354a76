"""Custom networks: features extractors as in the guide of stable-baselines3, with one import changed, and whole networks.

Run it: `python examples/custom_network.py` (a few seconds).
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlsdk_envs import AnySpaceEnv, FakeImageEnv
from rlsdk_qrdqn import QRDQN
from rlsdk_sb3 import BaseFeaturesExtractor
from rlsdk_trpo import TRPO


class CustomCNN(BaseFeaturesExtractor):
    """A features extractor for images, which arrive with channels first, as floats between 0 and 1."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 256) -> None:
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        self.cnn = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=8, stride=4, padding=0),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2, padding=0),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():  # one forward pass finds the width of the output
            width = self.cnn(torch.as_tensor(observation_space.sample()[None]).float()).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        return self.linear(self.cnn(observations))


class CustomCombinedExtractor(BaseFeaturesExtractor):
    """A features extractor for a Dict of images and vectors. Its width is the sum over all parts."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__(observation_space, features_dim=1)
        extractors: dict[str, nn.Module] = {}
        total = 0
        for key, subspace in observation_space.spaces.items():
            if key == "image":
                extractors[key] = nn.Sequential(nn.MaxPool2d(4), nn.Flatten())
                total += subspace.shape[0] * (subspace.shape[1] // 4) * (subspace.shape[2] // 4)
            else:
                extractors[key] = nn.Linear(subspace.shape[0], 16)
                total += 16
        self.extractors = nn.ModuleDict(extractors)
        self._features_dim = total

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        encoded = [extractor(observations[key]) for key, extractor in self.extractors.items()]
        return torch.cat(encoded, dim=1)


class ResidualNetwork(nn.Module):
    """A whole network, from preprocessed observations to `output_dim` numbers. It uses no layers of rlsdk."""

    def __init__(self, observation_space: spaces.Box, output_dim: int, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(observation_space.shape[0], width), nn.Linear(width, output_dim)
        self.block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())

    def forward(self, observations: Tensor) -> Tensor:
        hidden = self.first(observations)
        return self.last(hidden + self.block(hidden))


def main() -> None:
    """Train each network for a few steps. A file stores only the name of its class, so loading needs the class again."""
    cnn = {"features_extractor_class": CustomCNN, "features_extractor_kwargs": {"features_dim": 128}}
    pictures = FakeImageEnv(action_space=spaces.Discrete(4))  # uint8 [36, 36, 1]: the network gets float [N, 1, 36, 36]
    model = QRDQN("CnnPolicy", pictures, policy_kwargs=cnn, buffer_size=200, learning_starts=16, seed=0)
    model.learn(32)
    model.save("custom_cnn")
    again = QRDQN.load("custom_cnn", custom_objects={"policy_kwargs.features_extractor_class": CustomCNN})
    print("saved and loaded:", again.predict(again.observation_space.sample(), deterministic=True)[0])

    parts = {"image": spaces.Box(0, 255, (36, 36, 3), np.uint8), "vector": spaces.Box(-1.0, 1.0, (4,), np.float32)}
    combined = {"features_extractor_class": CustomCombinedExtractor, "net_arch": [32]}
    several = AnySpaceEnv(spaces.Dict(parts), spaces.Discrete(3))
    other = TRPO("MultiInputPolicy", several, policy_kwargs=combined, n_steps=32, batch_size=16, seed=0)
    other.learn(64)
    print("a Dict observation:", other.predict(other.observation_space.sample(), deterministic=True)[0])

    whole = {"actor_class": ResidualNetwork, "actor_kwargs": {"width": 32}, "critic_class": ResidualNetwork}
    third = TRPO("MlpPolicy", "CartPole-v1", policy_kwargs=whole, n_steps=32, batch_size=16, seed=0)
    third.learn(64)
    third.save("whole_network")
    classes = {"policy_kwargs.actor_class": ResidualNetwork, "policy_kwargs.critic_class": ResidualNetwork}
    again = TRPO.load("whole_network", custom_objects=classes)
    print("a whole network:", again.predict(again.observation_space.sample(), deterministic=True)[0])


if __name__ == "__main__":
    main()
