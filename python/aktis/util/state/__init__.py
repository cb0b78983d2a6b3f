"""What there is in a session: tasks, actors, objects, nodes, workers, placement groups and jobs, as rows.

    from aktis.util.state import list_actors, summarize_tasks

    for actor in list_actors(filters=[("state", "=", "ALIVE")]):
        print(actor.class_name, actor["pid"])
    print(summarize_tasks()["cluster"]["summary"])

`list_*` give rows, `get_*` the row with an id, `summarize_*` counts. Rows are dataclasses and can be read
as dicts.
"""

from aktis.util.state._rows import (
    ActorState,
    JobState,
    NodeState,
    ObjectState,
    PlacementGroupState,
    TaskState,
    WorkerState,
)
from aktis.util.state.api import (
    get_actor,
    get_job,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)

__all__ = [
    "ActorState",
    "JobState",
    "NodeState",
    "ObjectState",
    "PlacementGroupState",
    "TaskState",
    "WorkerState",
    "get_actor",
    "get_job",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]
