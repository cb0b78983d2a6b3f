#[aktis::on_worker_start]
fn takes(x: u64) {
    let _ = x;
}

#[aktis::on_worker_start]
async fn waits() {}

#[aktis::on_worker_start(twice)]
fn has_options() {}

#[aktis::on_worker_start]
fn returns() -> u64 {
    3
}

#[aktis::on_worker_start]
struct NoFunction;

fn main() {}
