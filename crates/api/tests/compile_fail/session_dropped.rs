#![deny(unused_must_use)]

fn main() -> aktis::Result<()> {
    aktis::init()?;
    Ok(())
}
