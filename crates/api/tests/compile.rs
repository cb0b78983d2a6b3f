//! What compiles, and what does not: wrong use that types can catch is caught, with a helpful message.

#[test]
fn good_programs_compile_and_wrong_ones_say_why() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/*.rs");
}
