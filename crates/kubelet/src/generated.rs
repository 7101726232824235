//! What tonic makes of the two `.proto` files.

#![expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::default_trait_access,
    clippy::doc_markdown,
    clippy::too_many_lines,
    reason = "tonic's generated code has its own style"
)]

pub(crate) mod device_plugin {
    tonic::include_proto!("v1beta1");
}

pub(crate) mod pod_resources {
    tonic::include_proto!("v1");
}
