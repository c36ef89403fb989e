# SPDX-License-Identifier: Apache-2.0
"""
The machine's GPUs, read with the driver's library.

A call of the library may never return, and a process in such a call should not be killed. So the library is used in a
child process (`child`, `device`, `quantities`), which the daemon asks for each reading (`reader`).
Only the child imports nvidia-ml-py, which comes with the extra `gpu`.
"""
