"""Lightning's tests that cannot apply to FactoredStrategy, and why not.

They run all the same, and must fail: a test that passes, and an entry that no test answers to, is an error. What fails
with DDPStrategy as well needs no entry.
"""

from __future__ import annotations

_ADDRESSES = "several machines need each other's address, which FactoredStrategy asks for before it starts"
_BACKWARD = "calls the strategy's backward in place of its base class's, which FactoredStrategy's own calls"
_DEVICES = "sets torchrun's variables for other numbers of ranks than its Trainers have: FactoredStrategy refuses it"
_ERROR = "FactoredStrategy's error, which names the rank that failed and why, comes in the place of torch's"
_LAUNCHER = "brings a launcher of its own, which starts no samplers: FactoredStrategy refuses it"
_RANKS = "makes a cluster environment up, with two ranks a machine of a Trainer that has one: roles decide of ranks"
_SIGNATURE = "reads what the strategy takes off its class: the stand-in's takes what DDPStrategy does by **kwargs"
_SPAWN = "starts ranks by a launcher that it makes itself, which starts no samplers: FactoredStrategy refuses it"
_TORCHRUN = "torchrun starts as many ranks as train: FactoredStrategy has it start the samplers, too"
_WITHOUT = "launches a function without a Trainer, whose ranks would have no roles"

_CONNECTOR = "trainer/connectors/test_accelerator_connector.py"
_MANUAL = "trainer/optimization/test_manual_optimization.py"
_PROCESSES = "strategies/launchers/test_multiprocessing.py"
_STEPS = "trainer/properties/test_estimated_stepping_batches.py"

LEFT_OUT: dict[str, str] = {
    f"{_CONNECTOR}::test_accelerator_choice_multi_node_gpu[1-ddp-DDPStrategy]": _ADDRESSES,
    f"{_CONNECTOR}::test_accelerator_choice_multi_node_gpu[1-ddp_spawn-DDPStrategy]": _ADDRESSES,
    f"{_CONNECTOR}::test_accelerator_choice_multi_node_gpu[2-ddp-DDPStrategy]": _ADDRESSES,
    f"{_CONNECTOR}::test_accelerator_choice_multi_node_gpu[2-ddp_spawn-DDPStrategy]": _ADDRESSES,
    f"{_CONNECTOR}::test_connector_sets_num_nodes[ddp]": _ADDRESSES,
    f"{_CONNECTOR}::test_connector_sets_num_nodes[ddp_spawn]": _ADDRESSES,
    f"{_CONNECTOR}::test_strategy_choice_ddp_torchelastic": _TORCHRUN,
    f"{_PROCESSES}::test_collect_rank_zero_results[0-1-fit]": _RANKS,
    f"{_PROCESSES}::test_collect_rank_zero_results[0-1-other]": _RANKS,
    f"{_PROCESSES}::test_collect_rank_zero_results[1-1-fit]": _RANKS,
    f"{_PROCESSES}::test_collect_rank_zero_results[1-1-other]": _RANKS,
    "callbacks/test_stochastic_weight_avg.py::test_swa_callback": _BACKWARD,
    "callbacks/test_stochastic_weight_avg.py::test_swa_callback_scheduler_step": _BACKWARD,
    "callbacks/test_stochastic_weight_avg.py::test_swa_resume_training_from_checkpoint": _BACKWARD,
    "callbacks/test_stochastic_weight_avg.py::test_swa_resume_training_from_checkpoint_custom_scheduler": _BACKWARD,
    "core/test_results.py::test_result_reduce_ddp": _SPAWN,
    "models/test_gpu.py::test_torchelastic_gpu_parsing[2]": _DEVICES,
    "models/test_gpu.py::test_torchelastic_gpu_parsing[devices0]": _DEVICES,
    "models/test_gpu.py::test_torchelastic_gpu_parsing[devices3]": _DEVICES,
    "plugins/test_cluster_integration.py::test_ranks_available_automatic_strategy_selection": _ADDRESSES,
    "plugins/test_cluster_integration.py::test_ranks_available_manual_strategy_selection": _ADDRESSES,
    "utilities/test_all_gather_grad.py::test_all_gather_ddp_spawn": _SPAWN,
    f"{_STEPS}::test_num_stepping_batches_gpu[trainer_kwargs1-5]": _ADDRESSES,
    f"{_STEPS}::test_num_stepping_batches_gpu[trainer_kwargs2-4]": _ADDRESSES,
    f"{_STEPS}::test_num_stepping_batches_gpu[trainer_kwargs3-3]": _ADDRESSES,
    f"{_MANUAL}::test_multiple_optimizers_manual_call_counts[kwargs0]": _BACKWARD,
    f"{_MANUAL}::test_multiple_optimizers_manual_log": _BACKWARD,
    f"{_MANUAL}::test_step_with_optimizer_closure": _BACKWARD,
    f"{_MANUAL}::test_step_with_optimizer_closure_2": _BACKWARD,
    "strategies/test_ddp_integration.py::test_configure_launcher_create_processes_externally": _WITHOUT,
    "strategies/test_ddp_integration.py::test_find_unused_parameters_ddp_spawn_raises": _ERROR,
    "strategies/test_ddp_integration.py::test_ddp_spawn_add_get_queue": _LAUNCHER,
    "test_cli.py::test_cli_distributed_save_config_callback[ddp_spawn-False]": _ERROR,
    "test_cli.py::test_cli_distributed_save_config_callback[ddp_spawn-logger1]": _ERROR,
    "test_cli.py::test_ddpstrategy_instantiation_and_find_unused_parameters": _SIGNATURE,
    "trainer/test_trainer.py::test_spawn_predict_return_predictions": _ERROR,
    "trainer/test_trainer.py::test_trainer_config_strategy[trainer_kwargs14-DDPStrategy-CUDAAccelerator-2]": _ADDRESSES,
    "trainer/test_trainer.py::test_trainer_config_strategy[trainer_kwargs2-DDPStrategy-CPUAccelerator-1]": _ADDRESSES,
    "trainer/test_trainer.py::test_trainer_predict_ddp_spawn[cpu]": _ERROR,
}
"""Node id, without parameters for all of them -> reason."""


def reason_of(test: str) -> str | None:
    """Why the test of this node id is left out, or None if it is not."""
    return LEFT_OUT.get(test) or LEFT_OUT.get(test.partition("[")[0])
