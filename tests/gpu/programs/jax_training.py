"""A network trained under jit, in the memory that JAX takes for itself at the start."""
import jax
import jax.numpy as jnp

SIZES = (784, 512, 256, 10)


def initial(key):
    pairs = zip(jax.random.split(key, len(SIZES) - 1), SIZES, SIZES[1:])
    return [(jax.random.normal(key, (n, m)) * n**-0.5, jnp.zeros(m)) for key, n, m in pairs]


def loss(layers, inputs, labels):
    *hidden, (weights, bias) = layers
    for w, b in hidden:
        inputs = jax.nn.relu(inputs @ w + b)
    logits = jax.nn.log_softmax(inputs @ weights + bias)
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))


@jax.jit
def step(layers, key):
    keys = jax.random.split(key, 3)
    inputs = jax.random.normal(keys[0], (128, SIZES[0]))
    labels = jax.random.randint(keys[1], (128,), 0, SIZES[-1])
    value, gradients = jax.value_and_grad(loss)(layers, inputs, labels)
    return jax.tree.map(lambda w, g: w - 0.05 * g, layers, gradients), value, keys[2]


key = jax.random.key(7)
layers = initial(key)
for number in range(400):
    layers, value, key = step(layers, key)
    # The order of additions, which autotuning chooses anew in each run, changes later digits.
    if number % 100 == 0:
        print(f"{float(value):.1f}")
