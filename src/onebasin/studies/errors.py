"""What stops a study, said in one sentence."""


class StudyError(ValueError):
    """A study that cannot be run or read: what was got, what was expected, what to do."""
