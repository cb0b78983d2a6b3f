//! Users' values as bytes.
pub struct Arguments;
pub struct Buffer;
pub struct Encoded;
pub struct Value;
pub struct ArgumentReader;
impl ArgumentReader {
    pub fn next<T: serde::de::DeserializeOwned>(&mut self, _name: &str) -> Result<T, aktis_protocol::Failure> {
        unreachable!()
    }
}
