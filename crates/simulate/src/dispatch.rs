//! Runs a loop with the widest vector instructions that the processor has.
//!
//! The release is built for the oldest processors of an architecture. A kernel is compiled twice: for those, and with
//! AVX2 and fused multiplication. Whatever the kernel calls must be inlined into it, or is compiled once, for the old ones.

/// A loop to run. `FUSED` says whether `mul_add` is one instruction; otherwise it would be a slow function.
pub(crate) trait Kernel {
    /// What the loop results in.
    type Output;

    /// The loop. Implementations are `#[inline(always)]`.
    fn run<const FUSED: bool>(self) -> Self::Output;
}

/// Runs the kernel.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma")]
    fn wide<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<true>()
    }
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the two features, as the line above found.
        #[allow(unsafe_code)]
        return unsafe { wide(kernel) };
    }
    kernel.run::<false>()
}

/// Runs the kernel. Other architectures have fused multiplication from the start, or never.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    if cfg!(target_arch = "aarch64") { kernel.run::<true>() } else { kernel.run::<false>() }
}
