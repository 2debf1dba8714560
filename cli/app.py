"""The table of commands, whose modules are imported when they run, and the options of all."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from modeld.cli.settings import Settings
from modeld.daemon.contract.version import VERSION

COMMANDS = {
    "load": "Make a model resident.",
    "gen": "Answer a prompt, whole, on standard output.",
    "stream": "Answer a prompt as the text is produced.",
    "ps": "Show the slot, its worker, the queue and memory.",
    "kill": "Kill an inference, or the worker, and prove it.",
    "unload": "Release the resident model, if it is not busy.",
    "reap": "Release a resident that nobody used for a while.",
    "log": "Show the journal of loads, exits and refusals.",
    "stop": "End the daemon and its worker.",
    "daemon": "Run the daemon in the foreground.",
}
"""Name and summary; the module is ``modeld.cli.commands.<name>``, its command ``command``."""

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|)", re.ASCII)


def seconds(text: str) -> float:
    """The seconds in a duration: ``500ms``, ``10s``, ``5m``, ``2h`` or plain seconds.

    Raises ValueError for anything else, negative ones included.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; write 500ms, 10s, 5m, 2h or plain seconds")
    return float(found[1]) * _UNITS[found[2]]


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration in seconds, with words that stand for 0 and limits that include their ends."""

    name = "dur"

    def __init__(
        self,
        *,
        zero_words: tuple[str, ...] = (),
        least_s: float = 0.0,
        most_s: float = float("inf"),
        limits: str = "",
    ) -> None:
        self._zero_words = zero_words
        self._least_s = least_s
        self._most_s = most_s
        self._limits = limits

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The value in seconds, or a usage error that says what was expected."""
        if isinstance(value, float):
            return value
        if value in self._zero_words:
            return 0.0
        try:
            found = seconds(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
        if not self._least_s <= found <= self._most_s:
            self.fail(f"{value!r} is not {self._limits}", param, ctx)
        return found


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(ctx.find_object(Settings), name, value)

    return store


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"modeld {VERSION}")
        ctx.exit()


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value == "":
        raise click.BadParameter("an empty name is not a directory", ctx, param)
    _store("root_dir")(ctx, param, value)


GLOBAL_OPTIONS: list[click.Parameter] = [
    click.Option(
        ["--root"],
        metavar="DIR",
        expose_value=False,
        callback=_not_empty,
        help="The daemon's state directory (MODELD_ROOT).",
    ),
    click.Option(
        ["--json", "json_"],
        is_flag=True,
        expose_value=False,
        callback=_store("json"),
        help="Print JSON, errors too.",
    ),
    click.Option(
        ["--no-start"],
        is_flag=True,
        expose_value=False,
        callback=_store("no_start"),
        help="Never start a daemon (MODELD_NO_START=1).",
    ),
    click.Option(
        ["--timeout"],
        type=Duration(least_s=0.001, limits="longer than nothing"),
        metavar="DUR",
        expose_value=False,
        callback=_store("timeout_s"),
        help="Give up after DUR: 500ms, 10s, 5m, 2h or seconds.",
    ),
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_store("quiet"),
        help="No progress and no remarks.",
    ),
    click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_store("verbose"),
        help="More remarks on standard error.",
    ),
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Print the version.",
    ),
]


class Command(click.Command):
    """A command that takes the global options too, and lists them apart."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *GLOBAL_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options first."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                is_own = param not in GLOBAL_OPTIONS and param.name != "help"
                (own if is_own else shared).append(record)
        for title, records in (("Options", own), ("Options of every command", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandTable(click.Group):
    """The group: names and summaries are known without importing a command."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the table's order: what is used most comes first."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module imported now."""
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"modeld.cli.commands.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with, or a usage error that names near ones."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415

            near = get_close_matches(name, COMMANDS, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


group = CommandTable(
    "modeld",
    help="One local language model at a time, from the shell, with exits that are proven.",
    params=list(GLOBAL_OPTIONS),
    subcommand_metavar="COMMAND [ARGS]…",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def run(arguments: list[str], settings: Settings) -> int:
    """Run the command in ``arguments``; its exit status.

    Click's own ``main`` is not used: it turns a reader that is gone into exit 1 and Ctrl-C into
    an ``Abort`` with an empty line, and both mean something here.
    """
    try:
        with group.make_context("modeld", list(arguments), obj=settings) as ctx:
            status = group.invoke(ctx)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    return status if isinstance(status, int) else 0
