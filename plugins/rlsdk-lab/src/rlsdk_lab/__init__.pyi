from rlsdk_lab.benchmark import Bench as Bench
from rlsdk_lab.benchmark import bench as bench
from rlsdk_lab.comparison import Comparison as Comparison
from rlsdk_lab.comparison import compare as compare
from rlsdk_lab.profiling import profiled as profiled
from rlsdk_lab.ranges import Range as Range
from rlsdk_lab.ranges import search_space as search_space
from rlsdk_lab.rl_zoo import rl_zoo_preset as rl_zoo_preset
from rlsdk_lab.scores import Score as Score
from rlsdk_lab.scores import scores_below as scores_below
from rlsdk_lab.seeds_command import run_seeds as run_seeds
from rlsdk_lab.statistics import estimate as estimate
from rlsdk_lab.statistics import improvement as improvement
from rlsdk_lab.statistics import iqm as iqm
from rlsdk_lab.statistics import mean as mean
from rlsdk_lab.statistics import summarize as summarize
from rlsdk_lab.suite import Cell as Cell
from rlsdk_lab.suite import Suite as Suite
from rlsdk_lab.suite import load_suite as load_suite
from rlsdk_lab.suite import suites as suites
from rlsdk_lab.trials import Tuning as Tuning
from rlsdk_lab.tuning import tune as tune
from rlsdk_lab.video import record_video as record_video

__version__: str
