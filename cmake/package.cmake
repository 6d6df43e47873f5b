# SPDX-License-Identifier: Apache-2.0
# The library as other projects see it: one file, libcoda, of the objects of all folders; its
# installation, and the Debian package that `cpack` makes. Shared, or static where a project sets
# BUILD_SHARED_LIBS to OFF.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS ON)
endif()

# What the folders use of the system is the library's own business: PRIVATE.
set(objects "")
set(system_libraries "")
foreach(folder ${CODA_FOLDERS})
  coda_target(target ${folder})
  list(APPEND objects $<TARGET_OBJECTS:${target}>)
  get_target_property(links ${target} LINK_LIBRARIES)
  list(FILTER links EXCLUDE REGEX "^(coda_.*|links-NOTFOUND)$")
  list(APPEND system_libraries ${links})
endforeach()
list(REMOVE_DUPLICATES system_libraries)

add_library(libcoda ${objects})
add_library(coda::coda ALIAS libcoda)
# Before 1.0 a minor version may break programs, so it is part of the SONAME.
set_target_properties(libcoda PROPERTIES
  OUTPUT_NAME coda EXPORT_NAME coda LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(libcoda PUBLIC cxx_std_20)
target_include_directories(libcoda PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(libcoda PRIVATE ${system_libraries})
if(BUILD_SHARED_LIBS)
  target_link_options(libcoda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endif()

# A project that has this one in a subfolder decides itself what is installed.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # to install needs the library, not the benchmarks
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/coda)
install(TARGETS libcoda EXPORT coda)
install(DIRECTORY include/coda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(EXPORT coda NAMESPACE coda:: FILE codaTargets.cmake DESTINATION ${folder})
configure_package_config_file(cmake/codaConfig.cmake.in ${PROJECT_BINARY_DIR}/codaConfig.cmake
  INSTALL_DESTINATION ${folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/codaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/codaConfig.cmake ${PROJECT_BINARY_DIR}/codaConfigVersion.cmake
  DESTINATION ${folder})
file(RELATIVE_PATH prefix_of_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" prefix_of_pc "${prefix_of_pc}")
string(REPLACE ";" " " private_libraries "${system_libraries}")
string(REPLACE "OpenMP::OpenMP_CXX" "-fopenmp" private_libraries "${private_libraries}")
string(REPLACE "Threads::Threads" "-pthread" private_libraries "${private_libraries}")
string(REGEX REPLACE "(^| )([a-z]+)( |$)" "\\1-l\\2\\3" private_libraries "${private_libraries}")
configure_file(cmake/coda.pc.in coda.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/coda.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME coda-cpp)
set(CPACK_PACKAGE_CONTACT "The coda-cpp authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Transformer blocks as GEMM-plus-epilogue programs")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the library needs at run time is read from it
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, pkg-config")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
