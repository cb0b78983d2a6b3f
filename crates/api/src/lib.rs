//! A distributed execution framework for AI applications: tasks, actors and shared objects.
