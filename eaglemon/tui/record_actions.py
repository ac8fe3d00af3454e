"""The actions about what was written down: logs, and what was measured."""

from eaglemon.tui import scene as why
from eaglemon.tui.action import Action, action

LOG_ACTIONS: tuple[Action, ...] = (
    action(
        "next_hit",
        "n",
        "next",
        "Go to the next hit in the log",
        why.on_log,
        "log",
    ),
    action(
        "previous_hit",
        "N",
        "previous",
        "Go to the previous hit in the log",
        why.on_log,
        "log",
        important=False,
    ),
    action(
        "only",
        "ampersand",
        "only",
        "Show only the lines of the log that contain a text",
        why.on_log,
        "log",
    ),
    action(
        "jump",
        "J",
        "jump",
        "Go to a line of the log by its number, or to a time",
        why.on_log,
        "log",
    ),
    action(
        "select",
        "v",
        "select",
        "Select lines of the log, from here to where you go; y copies them",
        why.on_log,
        "log",
        important=False,
    ),
    action(
        "decisive",
        "c",
        "cause",
        "Go to the line of the log that decides",
        why.decisive,
        "log",
    ),
)

RUN_ACTIONS: tuple[Action, ...] = (
    action(
        "mark",
        "m",
        "mark",
        "Mark a run; two marked ones are compared (also space)",
        why.on_run,
        "runs",
    ),
    action(
        "report",
        "E",
        "report",
        "Write the report of the run into a file of its own",
        why.report,
        "runs",
        "experiment",
    ),
    action(
        "resume",
        "C",
        "resume",
        "Go on with the experiment that was cut off",
        why.resume,
        "runs",
    ),
)
