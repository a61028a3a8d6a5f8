//! Work that blocks its thread.

/// Runs `work` where blocking is allowed; a panic in it is passed on.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down and takes this task along at its next await.
            Err(_) => std::future::pending().await,
        },
    }
}
