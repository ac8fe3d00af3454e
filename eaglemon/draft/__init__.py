"""The draft doctor: reads drafts, runs them offline, finds their wiring and repairs it.

torch and safetensors are the extra ``draft``; only the modules that compute need them, and they
take torch from ``eaglemon.draft.torch_lib``.
"""
