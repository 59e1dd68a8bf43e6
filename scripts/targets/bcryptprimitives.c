/* The one function of bcryptprimitives.dll that Rust's standard library needs, for a Wine that is
   too old to have that library. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T len)
{
    return RtlGenRandom(bytes, len);
}
