"""The gradient of a compiled function."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp


@jax.jit
def step(weights, inputs):
    def loss(weights):
        return jnp.mean(jnp.tanh(jnp.sin(inputs) * weights + jnp.cos(inputs)) ** 2)

    return weights - 0.1 * jax.grad(loss)(weights)


weights = jax.jit(lambda: jnp.linspace(-1, 1, 2048))()
inputs = jax.jit(lambda: jnp.cos(jnp.arange(2048 * 2048, dtype=jnp.float32)).reshape(2048, 2048))()
for _ in range(3):
    weights = step(weights, inputs)
print(float(weights.sum()))
