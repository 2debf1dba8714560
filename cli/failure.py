"""From whatever was raised to one report and an exit status."""

import sys

import click

from modeld.cli import exits, render
from modeld.cli.output import OutputError
from modeld.cli.settings import Settings
from modeld.daemon.contract.errors import ErrorCode, ModeldError


def report(exc: BaseException, settings: Settings, arguments: list[str]) -> int:
    """Say what ``exc`` means, once and without a traceback; the exit status."""
    if isinstance(exc, SystemExit):
        return exc.code if isinstance(exc.code, int) else exits.INTERNAL
    if isinstance(exc, exits.Interrupted):
        return exc.status
    if isinstance(exc, (KeyboardInterrupt, click.Abort)):
        return exits.INTERRUPTED
    if isinstance(exc, BrokenPipeError):
        return exits.READER_GONE
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        render.to_stderr(exc.format_message())
        return exits.USAGE

    status, error = _translate(exc, settings)
    try:
        # A mistake in the options may have been found before --json was read.
        if settings.json or "--json" in arguments:
            render.error_as_json(error, as_event=settings.events)
        else:
            render.error_as_text(error, verbose=settings.verbose)
    except BrokenPipeError:
        return exits.READER_GONE
    except OutputError as output:
        render.to_stderr(f"modeld: {output}")
    return status


def _translate(exc: BaseException, settings: Settings) -> tuple[int, ModeldError]:
    if isinstance(exc, ModeldError):
        return exits.OF_ERROR[exc.code], exc
    if isinstance(exc, click.ClickException):
        context = getattr(exc, "ctx", None)
        command = context.command_path if context is not None else "modeld"
        return exits.USAGE, ModeldError(
            ErrorCode.BAD_REQUEST, exc.format_message(), recovery=f"see '{command} --help'"
        )
    if isinstance(exc, (OutputError, OSError)):
        # The machine's refusal (a full disk, a file mode, no descriptors left) is not a bug.
        return exits.INTERNAL, ModeldError(ErrorCode.INTERNAL, _of_os_error(exc))
    if settings.verbose:
        import traceback  # noqa: PLC0415

        traceback.print_exception(exc, file=sys.stderr)
    return exits.INTERNAL, ModeldError(
        ErrorCode.INTERNAL,
        f"internal error: {type(exc).__name__}: {exc}",
        recovery="this is a bug; the same command with -v shows where",
    )


def _of_os_error(exc: BaseException) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror
    return str(exc)
