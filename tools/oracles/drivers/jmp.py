"""Jmp: `DynamicLossScale` eagerly, and under `jax.jit`, where its minimum is always 1 and its division a multiplication."""

import jax.numpy as jnp
import jmp
from drivers.adjusted import compiled_step, step
from subject import STATIC_SETTINGS, Subject, pairs, read_attributes, settings, table


def fresh(init_scale: float, growth_interval: int, growth_factor: float = 2, min_scale: float = 1.0) -> jmp.DynamicLossScale:
    scales = {"loss_scale": jnp.float32(init_scale), "min_loss_scale": jnp.float32(min_scale)}
    return jmp.DynamicLossScale(**scales, period=growth_interval, factor=growth_factor)


def fresh_static(init_scale: float) -> jmp.StaticLossScale:
    return jmp.StaticLossScale(jnp.float32(init_scale))


READ, READ_STATIC = read_attributes(scale="loss_scale", good_steps="counter"), read_attributes(scale="loss_scale")
SETTINGS = settings(
    *pairs((1024.0, 3), (65536.0, 1), (2.0**126, 1), (4.0, 2)),
    *table("init_scale growth_interval growth_factor", (7000.0, 2, 3), (3e38, 1, 3), (7000.0, 2, 1.1)),
)
BOUNDED = {"init_scale": 64.0, "growth_interval": 2, "min_scale": 10.0}
DIFFERENT = settings(
    {"init_scale": 7000.0, "growth_interval": 2, "growth_factor": 3},
    reason="compiled, its division is a multiplication by the rounded reciprocal: preset jmp_jit",
) + settings(BOUNDED, reason="jax.jit replaces its minimum by 1: preset jmp_jit")

SUBJECTS = (
    Subject("jmp", "jmp", "DynamicLossScale", fresh, step, READ, SETTINGS + settings(BOUNDED), how="eagerly"),
    Subject("jmp_jit", "jmp", "DynamicLossScale", fresh, compiled_step, READ, SETTINGS, how="under jax.jit"),
    Subject("jmp", "jmp", "DynamicLossScale", fresh, compiled_step, READ, DIFFERENT, how="under jax.jit"),
    Subject("static", "jmp", "StaticLossScale", fresh_static, step, READ_STATIC, STATIC_SETTINGS),
)
