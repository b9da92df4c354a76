"""The interfaces of rlsdk. Read this first. Six matter. An algorithm's author writes an `Algorithm`, and a `Policy`, `Buffer`,
`Distribution` or `Plan` where those of the core do not fit; hardly ever a `Serializer`. `Parts` is what `build` returns.
A `Plan` gets a `Collector`, which acts in a `VectorEnv`: authors read these two, and hardly write them.

- `Policy` chooses actions and holds the networks::

      carry = policy.initial_carry(env.num_envs)
      act = policy.act(observation, carry, deterministic=False, generator=generator)
      step, carry = env.step(act.action), act.carry

- `Buffer` stores what was collected and samples batches of it::

      buffer = parts.buffer
      buffer.extend(rollout)
      batch = buffer.sample(256, generator)

- `Distribution` of actions, from the outputs of a network::

      distribution = Categorical(logits)
      action = distribution.sample(generator)
      log_prob, entropy = distribution.log_prob(action), distribution.entropy()

- `Algorithm` learns from batches; it sees no environment and no file::

      algorithm = parts.algorithm
      metrics = algorithm.update(batch, progress=0.5)
      loss = metrics["train/loss"]

- `Serializer` writes tensors with a JSON document; loading runs no code from the file::

      serializer.save(path, tensors, document)
      document = serializer.inspect(path)
      tensors, document = serializer.load(path)

- `Plan` is the training loop that uses the others, one round after another::

      plan = OffPolicyPlan.of(config)
      for cursor, report in plan.rounds(training, cursor):
          print(report.env_steps, report.metrics)

They are Protocols (`typing.Protocol`): any object with the listed members implements one, without inheritance. What a part
may do in addition stands in `PolicyAbilities`, `BufferAbilities`, `AlgorithmAbilities`, `PlanAbilities` and
`VectorEnvAbilities`: derive from them for the types, or just write the method. Names and arguments are checked when an agent is
assembled: a misspelt name is an error. The code that calls such a method looks it up with `ability`. `build` gets a
`BuildContext`. Shapes use the letters defined in `rlsdk.records`. `rlsdk_testing` checks every requirement stated here;
docs/contracts.md lists the checks.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
