"""What may go wrong by the user's hand, and the exit status each kind ends with."""


class SaccadeError(Exception):
    """A run that cannot go on, told in words a user can act on: the argument, the rule, the value, what to do."""

    exit_code = 1


class UsageError(SaccadeError):
    """The command, the recipe or the data was not as it must be; nothing was started."""

    exit_code = 2


class Damaged(SaccadeError):
    """A file is not as it was written: `what` says which, and is a sentence; `remedy` is where it stands as it does."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what = what


class MissingExtra(UsageError):
    """An optional package is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs {package}, which is not installed. Install it with:\n  pip install 'saccade[{extra}]'"
        )


class GateFailed(SaccadeError):
    """A result fell short of what was asked for with --fail-under."""

    exit_code = 3
