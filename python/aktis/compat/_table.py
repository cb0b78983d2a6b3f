"""The public names of Ray's core, and what has become of each here.

`names` lists them by module, as the installed package of version 2.60 shows them. `DIFFERENT` and `MISSING`
say of single names, or of whole modules, how they differ or why they are not there; all others are there. The
page docs/ray-names.md is made of this: `python -m aktis.compat._table > docs/ray-names.md`.
"""

from aktis.compat._environment import RAY_VERSION

_LISTED = """
ray: ActorClassID ActorID ClientBuilder DynamicObjectRefGenerator FunctionID JobID Language LoggingConfig
    NodeID ObjectID ObjectRef ObjectRefGenerator PlacementGroupID SCRIPT_MODE TaskID UniqueID WORKER_MODE
    WorkerID actor autoscaler available_resources cancel client cluster_resources cpp_function data get
    get_actor get_gpu_ids get_runtime_context init internal is_initialized java_actor_class java_function
    kill method nodes put remote shutdown timeline util wait widgets workflow
ray.actor: ActorClass ActorClassInheritanceException ActorHandle ActorMethod exit_actor method
ray.cluster_utils: AutoscalingCluster Cluster
ray.dag: BIND_INDEX_KEY COLLECTIVE_OPERATION_KEY ClassMethodNode ClassNode CollectiveOutputNode DAGContext
    DAGInputData DAGNODE_TYPE_KEY DAGNode DAGOperationFuture FunctionNode GPUFuture
    IS_CLASS_METHOD_OUTPUT_KEY InputAttributeNode InputNode MultiOutputNode PARENT_CLASS_NODE_KEY
    PREV_CLASS_METHOD_CALL_KEY plot
ray.exceptions: ActorAlreadyExistsError ActorDiedError ActorHandleNotFoundError ActorPlacementGroupRemoved
    ActorUnavailableError ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError
    GetTimeoutError LocalRayletDiedError NodeDiedError ObjectFetchTimedOutError ObjectFreedError
    ObjectLostError ObjectReconstructionFailedError ObjectRefStreamEndOfStreamError ObjectStoreFullError
    OufOfBandObjectRefSerializationException OutOfDiskError OutOfMemoryError OwnerDiedError
    PendingCallsLimitExceeded PlasmaObjectNotAvailable RayActorError RayCgraphCapacityExceeded
    RayChannelError RayChannelTimeoutError RayDirectTransportError RayError RaySystemError RayTaskError
    ReferenceCountingAssertionError RpcError RuntimeEnvSetupError StreamingGeneratorReplayInconsistentError
    TaskCancelledError TaskPlacementGroupRemoved TaskUnschedulableError UnserializableException
    UserCodeException WorkerCrashedError
ray.experimental: CommunicatorMetadata RDTManager TensorTransportManager TensorTransportMetadata
    deregister_nixl_memory get_local_object_locations get_object_locations register_nixl_memory
    register_nixl_memory_pool register_tensor_transport set_nixl_cuda_stream set_resource
    set_target_device_for_ref set_target_for_ref wait_tensor_freed
ray.experimental.channel: AwaitableBackgroundReader AwaitableBackgroundWriter BufferedSharedMemoryChannel
    CPUCommunicator CachedChannel Channel ChannelContext Communicator CompiledDAGArgs CompositeChannel
    IntraProcessChannel ReaderInterface SynchronousReader SynchronousWriter TorchTensorAcceleratorChannel
    WriterInterface
ray.experimental.tqdm_ray: instance safe_print tqdm
ray.job_config: JobConfig
ray.runtime_context: RuntimeContext get_runtime_context
ray.runtime_env: RuntimeEnv RuntimeEnvConfig
ray.types: ObjectRef
ray.util: ActorPool accelerators as_completed collective connect deregister_serializer
    disable_log_once_globally disconnect enable_periodic_logging get_current_placement_group
    get_node_instance_id get_node_ip_address get_placement_group inspect_serializability iter
    list_named_actors log_once map_unordered pdb placement_group placement_group_table ray_debugpy
    register_serializer remove_placement_group
ray.util.accelerators: AMD_INSTINCT_MI100 AMD_INSTINCT_MI210 AMD_INSTINCT_MI250 AMD_INSTINCT_MI250x
    AMD_INSTINCT_MI300x AMD_RADEON_HD_7900 AMD_RADEON_R9_200_HD_7900 APPLE_M1 APPLE_M1_MAX APPLE_M1_PRO
    APPLE_M1_ULTRA APPLE_M2 APPLE_M2_MAX APPLE_M2_PRO APPLE_M2_ULTRA APPLE_M3 APPLE_M3_MAX APPLE_M3_PRO
    APPLE_SILICON AWS_NEURON_CORE GOOGLE_TPU_V2 GOOGLE_TPU_V3 GOOGLE_TPU_V4 GOOGLE_TPU_V5LITEPOD
    GOOGLE_TPU_V5P GOOGLE_TPU_V6E GOOGLE_TPU_V7X INTEL_GAUDI INTEL_MAX_1100 INTEL_MAX_1550 METAX_C500
    METAX_C550 MOBILINT_ARIES MOBILINT_REGULUS NVIDIA_A100 NVIDIA_A100_40G NVIDIA_A100_80G NVIDIA_H100
    NVIDIA_L4 NVIDIA_TESLA_A100 NVIDIA_TESLA_A10G NVIDIA_TESLA_K80 NVIDIA_TESLA_P100 NVIDIA_TESLA_P4
    NVIDIA_TESLA_T4 NVIDIA_TESLA_V100
ray.util.actor_pool: ActorPool
ray.util.annotations: AnnotationType Deprecated DeveloperAPI PublicAPI RayDeprecationWarning
ray.util.check_serialize: FailureTuple inspect_serializability
ray.util.collective: allgather allreduce barrier broadcast create_collective_group destroy_collective_group
    get_rank init_collective_group recv reduce reducescatter send
ray.util.dask: RayDaskCallback ProgressBarCallback dataframe_optimize disable_dask_on_ray enable_dask_on_ray
    ray_dask_get ray_dask_get_sync
ray.util.debug: Suspect disable_log_once_globally enable_periodic_logging log_once reset_log_once
ray.util.joblib: register_ray
ray.util.metrics: Counter Gauge Histogram
ray.util.multiprocessing: JoinableQueue Pool TimeoutError
ray.util.placement_group: PlacementGroup check_placement_group_index get_current_placement_group
    get_placement_group placement_group placement_group_table remove_placement_group
    validate_placement_group
ray.util.queue: Empty Full Queue
ray.util.rpdb: set_trace
ray.util.scheduling_strategies: DoesNotExist Exists In NodeAffinitySchedulingStrategy
    NodeLabelSchedulingStrategy NotIn PlacementGroupSchedulingStrategy
ray.util.serialization: StandaloneSerializationContext deregister_serializer register_serializer
ray.util.spark: MAX_NUM_WORKER_NODES setup_global_ray_cluster setup_ray_cluster shutdown_ray_cluster
ray.util.state: StateApiClient get_actor get_job get_log get_node get_objects get_placement_group get_task
    get_worker list_actors list_cluster_events list_jobs list_logs list_nodes list_objects
    list_placement_groups list_runtime_envs list_tasks list_workers summarize_actors summarize_objects
    summarize_tasks
ray.util.tpu: SlicePlacementGroup SubslicePlacementGroup dispatch get_current_pod_name
    get_current_pod_worker_count get_num_ready_tpu_slices get_num_tpu_chips_on_node get_num_tpu_slices
    get_tpu_coordinator_env_vars get_tpu_nodes_for_slice get_tpu_num_slices_for_workers
    get_tpu_slice_name_from_node get_tpu_version_from_type get_tpu_worker_resources init_jax_profiler
    run_on_slice slice_placement_group subslice_placement_group
"""

DIFFERENT: dict[str, str] = {
    "ray.ObjectID": "the same class as `ObjectRef`",
    "ray.cancel": "without `aktis.compat`, `get` raises at once, whatever a running task makes of it",
    "ray.init": "starts a node inside of the program; keywords about servers have no effect",
    "ray.timeline": "the last 2048 tasks and calls of each worker of the node that is asked",
    "ray.util.state.list_tasks": "finished ones as far as the node has them on record: 2048 of each worker",
    "ray.util.rpdb.set_trace": "waits for `aktis debug` on the same machine; there is no `ray debug`",
    "ray.util.queue.Queue": "items live in an actor with other private methods",
    "ray.cluster_utils.Cluster": "each node is a process with workers and a store of its own",
    "ray.runtime_env.RuntimeEnv": "`conda` and containers raise `RuntimeEnvSetupError`",
    "ray.exceptions.ActorUnavailableError": "never raised: calls wait while an actor starts again",
    "ray.exceptions.OwnerDiedError": "never raised for objects that have a value: they outlive their creator",
    "ray.dag.DAGNode": "`experimental_compile` gives the same graph on the plain engine",
}
"""Names that are there, and do something else than in Ray."""

MISSING: dict[str, str] = {
    "ray.ClientBuilder": "`ray://` addresses: start a node on the machine, and attach to that",
    "ray.client": "`ray://` addresses: start a node on the machine, and attach to that",
    "ray.util.connect": "`ray://` addresses: start a node on the machine, and attach to that",
    "ray.util.disconnect": "`ray://` addresses: start a node on the machine, and attach to that",
    "ray.Language": "calls between languages",
    "ray.cpp_function": "calls between languages",
    "ray.java_actor_class": "calls between languages",
    "ray.java_function": "calls between languages",
    "ray.LoggingConfig": "configure the module `logging` in `worker_process_setup_hook`",
    "ray.autoscaler": "nodes are added with `aktis start`",
    "ray.cluster_utils.AutoscalingCluster": "nodes are added with `Cluster.add_node`",
    "ray.data": "a library of its own",
    "ray.internal": "private; `free` and `memory_summary` are answered",
    "ray.widgets": "widgets of notebooks",
    "ray.workflow": "a library of its own",
    "ray.experimental.tqdm_ray.instance": "private to its bars",
    "ray.util.annotations.RayDeprecationWarning": "deprecated names warn with DeprecationWarning",
    "ray.util.dask.ProgressBarCallback": "no callbacks of tasks; Dask's own bars need its own schedulers",
    "ray.util.dask.RayDaskCallback": "no callbacks of tasks",
    "ray.util.dask.dataframe_optimize": "Dask optimises shuffles itself",
    "ray.util.serialization.StandaloneSerializationContext": "use `ray.cloudpickle`",
    "ray.util.debug.Suspect": "`aktis.util.debug.memory_summary` and `reference_counts` find leaks",
    "ray.util.debug.reset_log_once": "private to its tests",
    "ray.util.get_node_instance_id": "nodes have no ids of a cloud's",
    "ray.util.iter": "use generators, or `ray.util.ActorPool`",
    "ray.util.pdb": "use `breakpoint()` or `ray.util.rpdb`, and `aktis debug`",
    "ray.util.ray_debugpy": "use `breakpoint()` or `ray.util.rpdb`, and `aktis debug`",
    "ray.util.spark": "no clusters inside of Spark",
    "ray.util.tpu": "no TPU slices",
    "ray.util.state.StateApiClient": "call the functions of `ray.util.state`",
    "ray.util.state.get_log": "`aktis logs` has what workers print",
    "ray.util.state.list_logs": "`aktis logs` has what workers print",
    "ray.util.state.list_cluster_events": "no events of servers",
    "ray.util.state.list_runtime_envs": "`get_runtime_context().runtime_env` tells the own one",
    "ray.util.placement_group.check_placement_group_index": "private; `.remote()` checks",
    "ray.util.multiprocessing.JoinableQueue": "use `ray.util.queue.Queue`",
    "ray.experimental.channel": "compiled graphs run on the plain engine, without channels",
    "ray.exceptions.ObjectRefStreamEndOfStreamError": "private; generators raise StopIteration",
    "ray.exceptions.RayDirectTransportError": "no transport between GPUs",
    "ray.exceptions.StreamingGeneratorReplayInconsistentError": "items of a retry are not compared",
    **{
        f"ray.dag.{name}": "private to compiled graphs"
        for name in (
            *("BIND_INDEX_KEY", "COLLECTIVE_OPERATION_KEY", "CollectiveOutputNode", "DAGContext"),
            *("DAGInputData", "DAGNODE_TYPE_KEY", "DAGOperationFuture", "GPUFuture"),
            *("IS_CLASS_METHOD_OUTPUT_KEY", "PARENT_CLASS_NODE_KEY", "PREV_CLASS_METHOD_CALL_KEY", "plot"),
        )
    },
    **{
        f"ray.experimental.{name}": "no transport between GPUs"
        for name in (
            *("CommunicatorMetadata", "RDTManager", "TensorTransportManager", "TensorTransportMetadata"),
            *("deregister_nixl_memory", "register_nixl_memory", "register_nixl_memory_pool"),
            *("register_tensor_transport", "set_nixl_cuda_stream", "set_target_device_for_ref"),
            *("set_target_for_ref", "wait_tensor_freed"),
        )
    },
    "ray.experimental.set_resource": "the resources of a node are fixed",
}
"""Names, and whole modules, that are not there, and why or what to use instead."""

LIBRARIES = ("air", "data", "llm", "rllib", "serve", "train", "tune", "workflow")
"""Ray's libraries on top of its core: they import, and raise when they are used."""


def names() -> dict[str, list[str]]:
    """Ray's public names by module."""
    found: dict[str, list[str]] = {}
    module = ""
    for word in _LISTED.split():
        if word.endswith(":"):
            module = word[:-1]
            found[module] = []
        else:
            found[module].append(word)
    return found


def note_of(full: str) -> tuple[str, str]:
    """What has become of a name: "there", "different" or "missing", and how or why."""
    module, _, _ = full.rpartition(".")
    for table, word in ((MISSING, "missing"), (DIFFERENT, "different")):
        if full in table:
            return word, table[full]
    library = full.split(".")[1] if "." in full else ""
    if library in LIBRARIES:
        return "missing", "a library of its own"
    while module:
        if module in MISSING:
            return "missing", MISSING[module]
        module = module.rpartition(".")[0]
    return "there", ""


def page() -> str:
    """The page docs/ray-names.md."""
    lines = [
        "# Ray's public names",
        "",
        f"Every public name of the core of Ray {RAY_VERSION}, and what became of it under `aktis.compat`.",
        "This page is generated (`python -m aktis.compat._table > docs/ray-names.md`), and a test compares",
        "it with what is there. [coming-from-ray.md](coming-from-ray.md) says how programs are checked.",
    ]
    for module, listed in names().items():
        lines += ["", f"## {module}", ""]
        by_note: dict[tuple[str, str], list[str]] = {}
        for name in listed:
            by_note.setdefault(note_of(f"{module}.{name}"), []).append(name)
        lines += ["| names | here |", "|---|---|"]
        for (word, note), found in by_note.items():
            shown = ", ".join(f"`{name}`" for name in found)
            here = {"there": "yes", "different": f"yes, but {note}", "missing": f"no: {note}"}[word]
            lines.append(f"| {shown} | {here} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
