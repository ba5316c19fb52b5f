//! Compiles the .proto files without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = protox::compile(["cairn/v1/cairn.proto"], ["."])?;
    // Page bytes, packed keys and packed tokens stay slices of the buffer that they arrived in.
    tonic_prost_build::configure()
        .bytes(".cairn.v1.PagePart.data")
        .bytes(".cairn.v1.KeyChain.packed")
        .bytes(".cairn.v1.TokenChain")
        .compile_fds(files)?;
    println!("cargo::rerun-if-changed=cairn");
    Ok(())
}
