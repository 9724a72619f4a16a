"""Tables in CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.errors import UserError
from fedsim.tasks.reading.files import require_file

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path, hint: str) -> pd.DataFrame:
    """The table in a file: Parquet if its name ends in .parquet, else CSV; ``hint`` suggests a fix for a damaged one.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    import pandas as pd
    import pyarrow as pa

    require_file(path)
    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise UserError(f"it cannot be read: {error}", where=str(path), hint=hint) from error
