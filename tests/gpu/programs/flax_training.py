"""A network of flax trained with optax, step by step under jit and in a scan."""
import jax
import jax.numpy as jnp
import optax
from flax import linen


class Network(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        for width in (256, 128):
            inputs = linen.relu(linen.LayerNorm()(linen.Dense(width)(inputs)))
        return linen.Dense(10)(inputs)


network = Network()
optimizer = optax.adamw(1e-3)
inputs = jax.random.normal(jax.random.key(1), (128, 64))
labels = jnp.arange(128) % 10
weights = network.init(jax.random.key(0), inputs)


def loss(weights):
    logits = network.apply(weights, inputs)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def step(state, _):
    weights, moments = state
    value, gradients = jax.value_and_grad(loss)(weights)
    updates, moments = optimizer.update(gradients, moments, weights)
    return (optax.apply_updates(weights, updates), moments), value


state = weights, optimizer.init(weights)
single = jax.jit(step)
for _ in range(50):
    state, value = single(state, None)
# The order of additions, which autotuning chooses anew in each run, changes later digits.
print(f"{float(value):.1f}")
state, values = jax.jit(lambda state: jax.lax.scan(step, state, length=100))(state)
print(f"{float(values[-1]):.1f}")
