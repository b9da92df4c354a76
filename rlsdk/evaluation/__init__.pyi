from rlsdk.evaluation.evaluate import Evaluation as Evaluation
from rlsdk.evaluation.evaluate import evaluate_policy as evaluate_policy
from rlsdk.evaluation.evaluate import run_episodes as run_episodes
