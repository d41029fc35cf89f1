"""Keep the loss scale that a step of TrainOneStepWithLossScaleCell returns, and run another step."""

import mindspore
from mindspore import Parameter, Tensor, nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor([1.0], mindspore.float32), name="weight")

    def construct(self, data):
        return (self.weight * data).sum()


net = Net()
update = nn.DynamicLossScaleUpdateCell(loss_scale_value=1024, scale_factor=2, scale_window=1)
cell = nn.TrainOneStepWithLossScaleCell(net, nn.SGD(net.trainable_params()), scale_sense=update)
cell.ascend_910b_target, cell.enable_allfinite = True, False  # for the CPU only, which has no kernels for the other targets
data = Tensor([1.0], mindspore.float32)
_, _, first = cell(data)
print("loss scale that step 1 returned:", float(first.asnumpy()))
cell(data)
print("the same object after step 2:", float(first.asnumpy()), type(first).__name__)
