"""Compression of the vectors that cross the network."""

from fedsim.learning.compression.base import Compression as Compression
from fedsim.learning.compression.base import CompressionParams as CompressionParams
from fedsim.learning.compression.base import Draws as Draws
from fedsim.learning.compression.base import FeedbackParams as FeedbackParams
from fedsim.learning.compression.base import WithFeedback as WithFeedback
