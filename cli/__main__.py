"""The command line's entry, and the one place where an exception becomes an exit status."""

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run ``modeld`` with ``argv`` (the process's own without one); the exit status.

    Every failure ends in one or two lines on stderr (or one JSON line on stdout), never in a
    traceback. Imports are made inside, so that Ctrl-C during start-up is quiet as well.
    """
    try:
        _fill_standard_descriptors()
        from modeld.cli import app  # noqa: PLC0415
        from modeld.cli.settings import Settings  # noqa: PLC0415

        arguments = sys.argv[1:] if argv is None else argv
        settings = Settings()
        try:
            status = app.run(arguments, settings)
            sys.stdout.flush()
        except BaseException as exc:  # noqa: BLE001
            from modeld.cli import failure  # noqa: PLC0415

            status = failure.report(exc, settings, arguments)
        _forget_unwritten_output()
    except KeyboardInterrupt:
        return 130
    return status


def _fill_standard_descriptors() -> None:
    """Descriptors 0, 1 and 2 are open when this returns.

    One that was closed gets /dev/null the wrong way round: using it fails as it did before, and no
    socket or lock can land on its number and be mistaken for it.
    """
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _forget_unwritten_output() -> None:
    """Let the interpreter's last flush succeed, whatever became of the reader."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)


if __name__ == "__main__":
    sys.exit(main())
