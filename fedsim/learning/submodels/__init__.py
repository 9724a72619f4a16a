"""Parts of the model that clients train instead of all of it."""

from fedsim.learning.submodels.base import Submodels as Submodels
from fedsim.learning.submodels.base import SubmodelsParams as SubmodelsParams
from fedsim.learning.submodels.parts import Parts as Parts
