"""Tables in CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path, hint: str) -> pd.DataFrame:
    """The table in a file: Parquet if its name ends in .parquet, else CSV.

    Args:
        path: the file.
        hint: suggests a fix for a file that cannot be read.

    Raises:
        UserError: it cannot be read.
    """
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise UserError(f"it cannot be read: {error}", where=str(path), hint=hint) from error
