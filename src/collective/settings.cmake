# SPDX-License-Identifier: Apache-2.0
# MPI is opened at run time, and a thread watches the connections.
target_link_libraries(coda_collective PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
