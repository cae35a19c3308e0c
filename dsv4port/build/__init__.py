"""Native code: toolchains, targets, environments, kernels of patchsets, and checks of all of it."""
