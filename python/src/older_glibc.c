/* SPDX-License-Identifier: Apache-2.0 */
/* For wheels: names of glibc that are newer than 2.28, as the older names that it has kept, or as
   functions of our own. The linker is told --wrap for what is wrapped here (python/CMakeLists.txt).
   scripts/wheel.sh has auditwheel judge the result. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

struct stat;

/* Each of these is the same function under both versions, but for exp, exp2, log, log2 and pow, of
   which the older also sets errno. */
#define OLDER(result, name, parameters, arguments)            \
  result older_##name parameters;                             \
  __asm__(".symver older_" #name ", " #name "@GLIBC_2.2.5");  \
  result __wrap_##name parameters { return older_##name arguments; }

OLDER(double, exp, (double x), (x))
OLDER(double, exp2, (double x), (x))
OLDER(double, log, (double x), (x))
OLDER(double, log2, (double x), (x))
OLDER(double, pow, (double x, double y), (x, y))
OLDER(float, expf, (float x), (x))
OLDER(float, logf, (float x), (x))
OLDER(float, log2f, (float x), (x))
OLDER(float, powf, (float x, float y), (x, y))
OLDER(void*, dlopen, (const char* file, int mode), (file, mode))
OLDER(void*, dlsym, (void* library, const char* name), (library, name))
OLDER(char*, dlerror, (void), ())
OLDER(int, dlclose, (void* library), (library))
OLDER(int, dladdr, (const void* address, Dl_info* info), (address, info))
OLDER(int, pthread_once, (pthread_once_t * once, void (*run)(void)), (once, run))
OLDER(int, pthread_key_create, (pthread_key_t * key, void (*end)(void*)), (key, end))
OLDER(int, __pthread_key_create, (pthread_key_t * key, void (*end)(void*)), (key, end))
OLDER(int, pthread_key_delete, (pthread_key_t key), (key))
OLDER(void*, pthread_getspecific, (pthread_key_t key), (key))
OLDER(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
OLDER(int, pthread_create,
      (pthread_t * thread, const pthread_attr_t* how, void* (*run)(void*), void* with),
      (thread, how, run, with))
OLDER(int, pthread_join, (pthread_t thread, void** result), (thread, result))
OLDER(int, pthread_detach, (pthread_t thread), (thread))
OLDER(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))

/* Before 2.33 these were inline functions of headers. The kernel's struct is glibc's (x86-64). */
#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN int __wrap_stat(const char* path, struct stat* made) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, made, 0);
}
HIDDEN int __wrap_lstat(const char* path, struct stat* made) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, made, AT_SYMLINK_NOFOLLOW);
}
HIDDEN int __wrap_fstat(int file, struct stat* made) {
  return (int)syscall(SYS_fstat, file, made);
}
HIDDEN int __wrap_fstat64(int file, struct stat* made) { return __wrap_fstat(file, made); }
HIDDEN int __wrap_fstatat(int folder, const char* path, struct stat* made, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, made, flags);
}

/* libstdc++ counts references without atomic operations where this is 1. */
HIDDEN char __libc_single_threaded = 0;
