"""A compiled function and its gradient."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp


@jax.jit
def loss(weights, inputs):
    return jnp.mean(jnp.tanh(inputs @ weights) ** 2)


weights = jnp.linspace(-1, 1, 64 * 8).reshape(64, 8)
inputs = jnp.cos(jnp.arange(16 * 64, dtype=jnp.float32)).reshape(16, 64)
gradient = jax.jit(jax.grad(loss))
for _ in range(3):
    weights = weights - 0.1 * gradient(weights, inputs)
    print(float(loss(weights, inputs)))
