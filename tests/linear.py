"""
Network whose gradients equal its inputs, so that a step can be checked by hand.

The loss is ``sum(w * x)`` over a list of parameters and a list of inputs, in float32. The gradient of a parameter is its
input; an input of None gives no gradient.
"""

import array_api_compat

from ampscale import Network
from ampscale.core.namespaces import quiet


def network(params):
    """Return a network with the parameters *params*, a list of arrays."""
    return Network(loss, params, vjp=vjp)


def loss(params, inputs):
    """Return the loss as a float32 array of shape ()."""
    xp = array_api_compat.array_namespace(params[0])
    pairs = [(xp.astype(w, xp.float32), xp.astype(x, xp.float32)) for w, x in zip(params, inputs, strict=True) if x is not None]
    with quiet(xp):
        return xp.asarray(sum((xp.sum(w * x) for w, x in pairs), start=xp.zeros_like(xp.sum(params[0], dtype=xp.float32))))


def vjp(params, inputs):
    """Return the loss, and a pullback that multiplies in the dtype of the seed and rounds to the dtype of the parameter."""
    xp = array_api_compat.array_namespace(params[0])

    def pullback(seed):
        with quiet(xp):
            return [
                None if x is None else xp.astype(xp.astype(x, seed.dtype) * seed, w.dtype)
                for w, x in zip(params, inputs, strict=True)
            ]

    return loss(params, inputs), pullback
