"""Actor and critics of TD3 and DDPG, from settings."""

from __future__ import annotations

from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelChoice
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.build_encoder import build_encoder
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.deterministic_actor import DeterministicActor
from rlsdk.networks.encoders import features_dim
from rlsdk.networks.ensemble import EnsembleMLP
from rlsdk.settings.deterministic_actor_critic import DeterministicActorCriticConfig
from rlsdk.settings.networks import widths
from rlsdk.spaces import Box

HIDDEN = (400, 300)
NAMES = ("pi", "qf")


def build_deterministic_actor_critic(
    context: BuildContext, config: DeterministicActorCriticConfig
) -> tuple[DeterministicActor, ContinuousCritics]:
    """(actor; `n_critics` critics that predict one value each), on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    assert isinstance(context.action_space, Box)
    networks, scale = config.policy_kwargs, ActionScale(context.action_space)
    hidden, wide = (widths(networks.net_arch, name, HIDDEN, names=NAMES) for name in NAMES)
    encoder = build_encoder(context, config.policy, networks)
    wide_actor = KernelChoice(networks.kernel, max(hidden, default=1), config.batch_size, context.device)
    actor = DeterministicActor(encoder, hidden, networks.activation_fn, scale, wide_actor)
    other = encoder if networks.share_features_extractor else build_encoder(context, config.policy, networks)
    ensemble = EnsembleMLP(networks.n_critics, features_dim(other) + scale.size, wide, 1, networks.activation_fn)
    choice = KernelChoice(networks.kernel, max(wide, default=1), config.batch_size, context.device)
    critics = ContinuousCritics(other, ensemble, choice)
    return actor.to(context.device), critics.to(context.device)
