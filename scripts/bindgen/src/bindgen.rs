//! Makes the JavaScript side of a built module: `bindgen MODULE.wasm OUT_DIR` writes `ternlight.js`,
//! `ternlight.d.ts` and `ternlight_bg.wasm`.

use std::env;
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, out_dir] = arguments.as_slice() else {
        eprintln!("usage: bindgen MODULE.wasm OUT_DIR");
        return ExitCode::from(2);
    };
    let made = Bindgen::new().web(true).and_then(|bindgen| {
        bindgen
            .input_path(module)
            .out_name("ternlight")
            .typescript(true)
            .omit_default_module_path(true)
            .remove_producers_section(true)
            .generate(out_dir)
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
