"""A table that speaks the interchange protocol and nothing else."""


class Interchanged:
    def __init__(self, frame):
        self._frame = frame

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self._frame.__dataframe__(nan_as_null, allow_copy)
