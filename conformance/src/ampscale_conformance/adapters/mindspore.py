"""MindSpore on the CPU: the loss scaler of hand-written loops, and the training cell with its update cell."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from . import version_of


class MindSpore:
    """`mindspore.amp.DynamicLossScaler` and `mindspore.amp.all_finite`."""

    info = ImplementationInfo(
        name="MindSpore DynamicLossScaler",
        version=version_of("mindspore"),
        url="https://www.mindspore.cn/docs/en/master/api_python/amp/mindspore.amp.DynamicLossScaler.html",
        level=1,
        capabilities=("rounding", "division", "integers"),
        preset="mindspore",
        arrays="mindspore",
    )

    def create(self, rule: Any) -> Any:
        """Unsupported where the scale is below 1 or the factor no whole number, which it refuses."""
        from mindspore import amp

        if rule.init_scale < 1 or rule.growth_factor != int(rule.growth_factor):
            raise Unsupported("its scale is at least 1, its factor an int")
        return amp.DynamicLossScaler(rule.init_scale, int(rule.growth_factor), rule.growth_interval)

    def update(self, scaler: Any, finite: bool) -> None:
        """Its own word for it."""
        from mindspore import Tensor

        scaler.adjust(Tensor(finite))

    def read_scale(self, scaler: Any) -> float:
        """Its parameter."""
        return float(scaler.scale_value.asnumpy())

    def scale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.scale(tree)

    def unscale(self, scaler: Any, tree: Any) -> Any:
        """Its own."""
        return scaler.unscale(tree)

    def all_finite(self, tree: Any) -> Any:
        """Its own, which takes a tuple of tensors."""
        from mindspore import amp

        return amp.all_finite(tuple(leaves(tree)))


class MindSporeCell:
    """
    `mindspore.nn.TrainOneStepWithLossScaleCell` with a `DynamicLossScaleUpdateCell`.

    The cell looks for an overflow as it does on a device that computes infinities: it is told that it stands on one, since
    the kernels of the others are not there on a CPU.
    """

    info = ImplementationInfo(
        name="MindSpore step cell",
        version=version_of("mindspore"),
        url="https://www.mindspore.cn/docs/en/master/api_python/nn/mindspore.nn.TrainOneStepWithLossScaleCell.html",
        level=3,
        capabilities=("rounding", "loss", "momentum"),
        preset="mindspore_update_cell",
        arrays="mindspore",
    )

    def create(self, rule: Any) -> Any:
        """An update cell, and the scale that a step cell would hold for it."""
        import mindspore
        from mindspore import Parameter, Tensor

        cell = update_cell(rule)
        return cell, Parameter(Tensor(cell.get_loss_scale(), mindspore.float32))

    def update(self, held: Any, finite: bool) -> None:
        """The update cell writes into the scale."""
        from mindspore import Tensor

        cell, scale = held
        cell(scale, Tensor(not finite))

    def read_scale(self, held: Any) -> float:
        """What the update cell wrote."""
        return float(held[1].asnumpy())

    def scale(self, held: Any, tree: Any) -> Any:
        """It is part of its step."""
        raise Unsupported("the cell has no scale to be called")

    def unscale(self, held: Any, tree: Any) -> Any:
        """It is part of its step."""
        raise Unsupported("the cell has no unscale to be called")

    def all_finite(self, tree: Any) -> Any:
        """It is part of its step."""
        raise Unsupported("the cell has no all_finite to be called")

    def add_optimizer(self, held: Any, parameters: Sequence[Any]) -> Any:
        """It has one optimizer, which it calls itself."""
        raise Unsupported("the cell is no scaler of a hand-written loop")

    def update_scale(self, held: Any) -> None:
        """Likewise."""
        raise Unsupported("the cell is no scaler of a hand-written loop")

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """A step cell over a linear network."""
        from mindspore import nn

        network = linear(parameters)
        optimizer = nn.SGD(network.trainable_params(), learning_rate=learning_rate, momentum=momentum)
        cell = nn.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=update_cell(rule))
        cell.ascend_910b_target, cell.enable_allfinite = True, False
        return cell

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        """One call; what it returns is handed on as it is."""
        scale = float(cell.scale_sense.asnumpy())
        loss, overflow, next_scale = cell(*data)
        return {
            "parameters": [parameter.value().copy() for parameter in cell.network.trainable_params()],
            "finite": not bool(overflow.asnumpy()),
            "scale": scale,
            "next_scale": next_scale,
            "loss": loss,
        }


def update_cell(rule: Any) -> Any:
    """With a rule's constants."""
    from mindspore import nn

    return nn.DynamicLossScaleUpdateCell(rule.init_scale, rule.growth_factor, rule.growth_interval)


def linear(values: Sequence[Any]) -> Any:
    """The network whose loss is the sum of its parameters times its inputs."""
    from mindspore import Parameter, ParameterTuple, nn

    class Linear(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = ParameterTuple([Parameter(value.copy(), name=f"held{at}") for at, value in enumerate(values)])

        def construct(self, *data: Any) -> Any:
            loss = (self.held[0] * data[0]).sum()
            for at in range(1, len(self.held)):
                loss = loss + (self.held[at] * data[at]).sum()
            return loss

    return Linear()


def leaves(tree: Any) -> list[Any]:
    """The tensors in lists, tuples and dicts."""
    children = tree.values() if isinstance(tree, dict) else tree
    return [leaf for child in children for leaf in leaves(child)] if isinstance(tree, dict | list | tuple) else [tree]


ADAPTER = MindSpore()
CELL = MindSporeCell()
