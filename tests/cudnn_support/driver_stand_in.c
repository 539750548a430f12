/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of the driver's libcuda.so.1, for the test that asks cuDNN which graphs it supports on
 * devices that are not there (cudnn_support_test.cc): cuDNN compiles its kernels when a plan is
 * made, and wants them loaded. Every call here succeeds and does nothing. Refuses to be a device:
 * nothing made with it can run.
 */
#include <stddef.h>
#include <stdint.h>

static char handle; /* of whatever is asked for: something that is not NULL */

#define DOES_NOTHING(name)                                                                         \
    int name(void);                                                                                \
    int name(void) {                                                                               \
        return 0;                                                                                  \
    }
#define GIVES_HANDLE(name)                                                                         \
    int name(void **out);                                                                          \
    int name(void **out) {                                                                         \
        *out = &handle;                                                                            \
        return 0;                                                                                  \
    }
#define GIVES_NUMBER(name, value)                                                                  \
    int name(int *out);                                                                            \
    int name(int *out) {                                                                           \
        *out = (value);                                                                            \
        return 0;                                                                                  \
    }
#define GIVES_TEXT(name)                                                                           \
    int name(int error, const char **out);                                                         \
    int name(int error, const char **out) {                                                        \
        (void)error;                                                                               \
        *out = "no error";                                                                         \
        return 0;                                                                                  \
    }

/* The CUDA runtime inside cuDNN gives up here, instead of asking for more. */
int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}

GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryLoadFromFile)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleLoadDataEx)
GIVES_HANDLE(cuModuleLoadFatBinary)
GIVES_HANDLE(cuModuleGetFunction)
GIVES_HANDLE(cuCtxGetCurrent)
GIVES_HANDLE(cuDevicePrimaryCtxRetain)
GIVES_NUMBER(cuDriverGetVersion, 13000)
GIVES_NUMBER(cuDeviceGet, 0)
GIVES_NUMBER(cuDeviceGetCount, 1)
GIVES_NUMBER(cuDeviceGetAttribute, 0)
GIVES_NUMBER(cuCtxGetDevice, 0)
GIVES_NUMBER(cuKernelGetAttribute, 0)
GIVES_NUMBER(cuFuncGetAttribute, 0)
GIVES_NUMBER(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
GIVES_NUMBER(cuOccupancyMaxPotentialClusterSize, 1)
GIVES_TEXT(cuGetErrorName)
GIVES_TEXT(cuGetErrorString)
DOES_NOTHING(cuCtxGetLimit)
DOES_NOTHING(cuCtxPopCurrent)
DOES_NOTHING(cuCtxPushCurrent)
DOES_NOTHING(cuDevicePrimaryCtxRelease)
DOES_NOTHING(cuDevicePrimaryCtxReset)
DOES_NOTHING(cuFuncSetAttribute)
DOES_NOTHING(cuKernelSetAttribute)
DOES_NOTHING(cuLaunchCooperativeKernel)
DOES_NOTHING(cuLaunchKernel)
DOES_NOTHING(cuLaunchKernelEx)
DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuLinkAddData)
DOES_NOTHING(cuLinkAddData_v2)
DOES_NOTHING(cuLinkAddFile_v2)
DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkCreate)
DOES_NOTHING(cuLinkCreate_v2)
DOES_NOTHING(cuLinkDestroy)
DOES_NOTHING(cuMemcpyDtoH_v2)
DOES_NOTHING(cuModuleGetGlobal_v2)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuStreamGetCtx)
DOES_NOTHING(cuStreamSynchronize)
DOES_NOTHING(cuTensorMapEncodeTiled)
