"""What recurrent policies remember between steps: none, LSTM or GRU behind one interface."""

from rlsdk.memories.recurrent import LinearMemory, Memory, NoMemory, RecurrentMemory, build_memory

__all__ = ["LinearMemory", "Memory", "NoMemory", "RecurrentMemory", "build_memory"]
