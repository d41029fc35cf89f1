"""MindSpore on the CPU: the loss scaler for hand-written loops, and the training cell with its update cell."""

from collections.abc import Sequence
from typing import Any

from ..model.adapter import ImplementationInfo, Unsupported
from ..model.bits import arrays
from . import version_of
from .base import Library, Scaler, StepCell, outputs

mindspore: Any = Library("mindspore")
amp: Any = Library("mindspore.amp")
nn: Any = Library("mindspore.nn")


class MindSpore(Scaler):
    """`mindspore.amp.DynamicLossScaler` and `mindspore.amp.all_finite`."""

    info = ImplementationInfo(
        name="MindSpore DynamicLossScaler",
        version=version_of("mindspore"),
        url="https://www.mindspore.cn/docs/en/master/api_python/amp/mindspore.amp.DynamicLossScaler.html",
        level=1,
        capabilities=("rounding", "division", "float16", "integers"),
        preset="mindspore",
        arrays="mindspore",
    )

    def create(self, rule: Any) -> Any:
        """Raise Unsupported for a scale below 1 or a factor that is not an integer, which MindSpore rejects."""
        if rule.init_scale < 1 or rule.growth_factor != int(rule.growth_factor):
            raise Unsupported("init_scale must be at least 1, and growth_factor an integer")
        return self.scaler_with(rule.init_scale, int(rule.growth_factor), rule.growth_interval)

    def scaler_with(self, *constants: Any) -> Any:
        return amp.DynamicLossScaler(*constants)

    def update(self, scaler: Any, finite: bool) -> None:
        scaler.adjust(mindspore.Tensor(finite))

    def read_scale(self, scaler: Any) -> float:
        return float(scaler.scale_value.asnumpy())

    def all_finite(self, tree: Any) -> Any:
        """Call `all_finite`, which takes a tuple of tensors."""
        return amp.all_finite(tuple(arrays(tree)))


class MindSporeCell(StepCell):
    """
    `mindspore.nn.TrainOneStepWithLossScaleCell` with a `DynamicLossScaleUpdateCell`.

    The cell is set to detect overflows as on devices that compute infinities, since a CPU lacks the kernels for other devices.
    """

    info = ImplementationInfo(
        name="MindSpore step cell",
        version=version_of("mindspore"),
        url="https://www.mindspore.cn/docs/en/master/api_python/nn/mindspore.nn.TrainOneStepWithLossScaleCell.html",
        level=3,
        capabilities=("rounding", "float16", "loss", "momentum"),
        preset="mindspore_update_cell",
        arrays="mindspore",
    )

    def create(self, rule: Any) -> Any:
        cell = update_cell(rule)
        return cell, mindspore.Parameter(mindspore.Tensor(cell.get_loss_scale(), mindspore.float32))

    def update(self, state: Any, finite: bool) -> None:
        cell, scale = state
        cell(scale, mindspore.Tensor(not finite))

    def read_scale(self, state: Any) -> float:
        return float(state[1].asnumpy())

    def create_cell(self, rule: Any, parameters: Sequence[Any], learning_rate: float, momentum: float = 0.0) -> Any:
        """Raise Unsupported for float64 parameters, which MindSpore's SGD rejects."""
        if any(parameter.dtype == mindspore.float64 for parameter in parameters):
            raise Unsupported("parameters must be float16 or float32, got float64")
        network = linear(parameters)
        optimizer = nn.SGD(network.trainable_params(), learning_rate=learning_rate, momentum=momentum)
        cell = nn.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=update_cell(rule))
        cell.ascend_910b_target, cell.enable_allfinite = True, False
        return cell

    def train_step(self, cell: Any, data: Sequence[Any]) -> dict[str, Any]:
        scale = float(cell.scale_sense.asnumpy())
        loss, overflow, next_scale = cell(*data)
        parameters = [parameter.value().copy() for parameter in cell.network.trainable_params()]
        return outputs(parameters, not bool(overflow.asnumpy()), scale, next_scale, loss)


def update_cell(rule: Any) -> Any:
    return nn.DynamicLossScaleUpdateCell(rule.init_scale, rule.growth_factor, rule.growth_interval)


def linear(values: Sequence[Any]) -> Any:
    """Return the network whose loss is the sum of its parameters times its inputs."""

    class Linear(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            weights = [mindspore.Parameter(value.copy(), name=f"weight{index}") for index, value in enumerate(values)]
            self.weights = mindspore.ParameterTuple(weights)

        def construct(self, *data: Any) -> Any:
            loss = (self.weights[0] * data[0]).sum()
            for index in range(1, len(self.weights)):
                loss = loss + (self.weights[index] * data[index]).sum()
            return loss

    return Linear()
