"""What training with contributed gradients must come to: a plain loop, told which gradient joined which step."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning import seed_everything
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lightning_gnnload import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.pipeline.slots import Slot
from tests.integration.scripts.switching import Contributing, Settings
from tests.integration.scripts.toy import toy_module


class Epochs:
    """The mini-batches and seeds of a run, by epoch and slice."""

    def __init__(self, settings: Settings, num_trainers: int) -> None:
        module = toy_module(settings.batch_size)
        module.setup("fit")
        self.source = module.source("train")
        self.num_trainers = num_trainers
        self.num_steps = self.source.plan(num_trainers).num_steps

    def seeds(self, epoch: int, number: int) -> list[int]:
        return self.source.workload.seeds_of(self._request(epoch, number)).tolist()

    def batch(self, epoch: int, number: int) -> MiniBatch:
        slot = Slot()
        return self.source.make(self._request(epoch, number), slot).view(slot.buffer())

    def _request(self, epoch: int, number: int) -> BatchRequest:
        step, rank = divmod(number, self.num_trainers)
        return BatchRequest(epoch, step, rank, self.num_trainers)


def replayed(settings: Settings, trainers: list[dict[str, Any]]) -> Tensor:
    """The final parameters, flat: each step averages the trainers' gradients with those that joined them, computed at
    the versions they were. When each trainer applies that changes no version."""
    seed_everything(3, verbose=False)
    model = Contributing(**settings.model)
    (optimizer,), (scheduling,) = model.configure_optimizers()
    epochs = Epochs(settings, len(trainers))
    versions = [parameters_to_vector(model.parameters()).detach().clone()]
    joined = {(epoch, step): merging for epoch, step, merging in trainers[0]["merged"]}

    def gradient(epoch: int, number: int, version: int) -> Tensor:
        vector_to_parameters(versions[version].clone(), model.parameters())
        found = torch.autograd.grad(model.loss(epochs.batch(epoch, number)), list(model.parameters()))
        return parameters_to_vector(found)

    def apply(average: Tensor) -> None:
        vector_to_parameters(versions[-1].clone(), model.parameters())
        begin = 0
        for parameter in model.parameters():
            parameter.grad = average[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
        optimizer.step()
        versions.append(parameters_to_vector(model.parameters()).detach().clone())

    for epoch, step, _, is_contributed in trainers[0]["steps"]:
        if not is_contributed:
            gradients = [
                gradient(epoch, step * len(trainers) + rank, record["versions"][len(versions) - 1])
                for rank, record in enumerate(trainers)
                if [epoch, step] not in record["left_out"]
            ]
            gradients += [gradient(epoch, number, version) for number, version in joined[epoch, step]]
            apply(torch.stack(gradients).mean(0))
        scheduling["scheduler"].step()
    return versions[-1]
