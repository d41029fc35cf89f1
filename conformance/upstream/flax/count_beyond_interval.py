"""Resume twice from one state: with the growth_interval of the saved run, and with a smaller one."""

import jax
import jax.numpy as jnp
from flax.serialization import from_state_dict, to_state_dict
from flax.training.dynamic_scale import DynamicScale

step = jax.jit(lambda scaler: scaler.value_and_grad(lambda p: p**2)(jnp.float32(1.0)).dynamic_scale)


def finite_steps(scaler, count):
    for _ in range(count):
        scaler = step(scaler)
    return scaler


saved = to_state_dict(finite_steps(DynamicScale(growth_interval=2000, scale=1024.0), 1500))
for interval in (2000, 1000):
    scaler = finite_steps(from_state_dict(DynamicScale(growth_interval=interval), saved), 2500)
    print(f"growth_interval {interval}: scale {float(scaler.scale)}, fin_steps {int(scaler.fin_steps)}")
